"""What runs inside a sandbox, or sets one up from within.

Standard library only, and imports within the package only relative ones: an interpreter that has
nothing installed loads this folder as a package of its own.
"""
