"""`python -m orchestration` is the command `multilink`: what starts it as a program needs no script on a PATH."""

from orchestration.cli import main

if __name__ == "__main__":
    main()
