"""The parts of the code verifier: the program in a completion, the tests, and the comparison."""
