"""The loop: collect, update, record, save."""
