"""Reading mathematics out of text and comparing it: values, never programs.

prose -> formula -> tokens -> structure (lists, intervals, relations, units) -> expressions -> same?

The text is read by a small grammar of our own and never evaluated as code; SymPy holds the
expressions and computes with them. Everything that could grow without bound (digits, powers,
factorials, nesting) is limited where it is made, so no time limit is needed for ordinary safety.
"""
