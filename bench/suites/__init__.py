"""One module per suite; `bench.registry.SUITES` names them in the order in which they run."""
