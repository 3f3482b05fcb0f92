"""`python -m metaprior`, and `torchrun … -m metaprior`."""

from metaprior.cli import main

if __name__ == "__main__":
    main()
