"""What the site is made with: docstrings, the gallery, a look at its links, templates and style."""
