"""The figures, drawn from rows and curves alone."""
