"""The cases: each file has the functions that `tests.bench.web.case.Case` names."""
