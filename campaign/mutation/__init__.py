"""Small changes to code, and whether tests notice them. Nothing here imports the package that is changed."""
