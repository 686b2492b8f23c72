"""The cells of a notebook: start a hub and a model host, ask, and try another branch.

python examples/notebook.py FOLDER
"""

# %% Open a replica with its own hub and host, which stop with it
import os
import sys
from contextlib import ExitStack

import antiphon

if len(sys.argv) != 2:
    sys.exit(__doc__)
host_module = os.environ.get("ANTIPHON_HOST_MODULE", "model_host")
opened = ExitStack()  # a `with` would end with its cell
me = opened.enter_context(antiphon.local(sys.argv[1], host_module=host_module))

# %% Ask
notes = me.conversation("notes", system="Be brief.")
answer = notes.ask("Name a colour.", max_tokens=20)
print(answer.text, f"({answer.usage.output_tokens} tokens)")

# %% Ask twice more, the second time on another branch
notes.ask("Another one?", max_tokens=20)
print(notes.at(answer.entry).ask("A darker one?", max_tokens=20, temperature=0.8).text)
print(len(notes.branches()), "branches")

# %% Close; if a cell raised, this happens when the kernel exits
opened.close()
