"""`python -m goqueue` is the `goqueue` command."""

from goqueue.cli import main

if __name__ == "__main__":
    main()
