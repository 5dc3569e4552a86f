"""Tasks from data that people bring: files of rows, saved datasets, the hub."""

from verigrad.tasks.data.task import DataTask, data_task

__all__ = ["DataTask", "data_task"]
