"""The library that programs import as `antiphon`: events, tools and runs over a replica."""
