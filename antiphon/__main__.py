"""Run the command: `python -m antiphon` is `antiphon`."""

from antiphon.cli.entry import main

if __name__ == "__main__":
    main()
