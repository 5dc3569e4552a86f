"""The cases about code, in every sandbox that works here: no outcome depends on which it is."""

import pytest
from code_cases import run_code_case
from test_cases import CASES, outcome_of

from verigrad.verifiers.sandbox import SANDBOXES, SandboxUnavailableError, open_sandbox

CODE = [case for case in CASES if case["kind"] == "code" and not case["contested"]]

FIRST = next(iter(SANDBOXES))
"""In which they run with all the other cases."""


@pytest.mark.thorough
@pytest.mark.parametrize("sandbox", [name for name in SANDBOXES if name != FIRST])
def test_every_case_about_code_has_the_right_outcome_in_every_sandbox(sandbox: str) -> None:
    try:
        open_sandbox(sandbox).close()
    except SandboxUnavailableError as error:
        pytest.skip(str(error))
    got = {case["id"]: outcome_of(run_code_case(case, sandbox)).outcome for case in CODE}
    assert got == {case["id"]: case["expected"]["reward"] for case in CODE}
