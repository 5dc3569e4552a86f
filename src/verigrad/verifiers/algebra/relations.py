"""Equations and inequalities: what they say, whichever way they are written."""

from verigrad.verifiers.algebra.numeric import constant_ratio, numerator
from verigrad.verifiers.algebra.values import Named, Quantity, Relation

FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}
"""The sign of a relation whose sides are exchanged, or multiplied by a negative number."""


def as_relation(value: Named | Relation) -> Relation:
    """A name with its value as the equation that it is."""
    if isinstance(value, Relation):
        return value
    assert isinstance(value.value, Quantity)
    return Relation(value.symbol, "=", value.value.expr)


def same_relations(reference: Relation, given: Relation) -> bool:
    """Does one say the other times a constant (a positive one if it is an inequality)?"""
    mine = reference.left - reference.right
    theirs = given.left - given.right
    factor = constant_ratio(theirs, mine)
    if reference.sign in ("=", "!="):
        if factor is None:
            # y = 1/x is xy = 1.
            factor = constant_ratio(numerator(theirs), numerator(mine))
        return factor is not None and reference.sign == given.sign
    if factor is None:
        return False
    return given.sign == (reference.sign if factor > 0 else FLIPPED[reference.sign])
