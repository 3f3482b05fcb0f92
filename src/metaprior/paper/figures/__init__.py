"""The figures of the paper's experiments, drawn from rows and curves alone."""
