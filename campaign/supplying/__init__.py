"""What comes along with the package, and what its code may not do."""
