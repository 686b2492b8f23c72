"""The cells of a notebook: a hub and a model host of its own, a question, another way.

python examples/notebook.py FOLDER
"""

# %% A replica on a hub and a host that end with it
import os
import sys

import antiphon

if len(sys.argv) != 2:
    sys.exit(__doc__)
host_module = os.environ.get("ANTIPHON_HOST_MODULE", "model_host")
local = antiphon.local(sys.argv[1], host_module=host_module)
me = local.__enter__()

# %% Ask
notes = me.conversation("notes", system="Be brief.")
answer = notes.ask("Name a colour.", max_tokens=20)
print(answer.text, f"({answer.usage.output_tokens} tokens)")

# %% Ask twice more, the second time beside the first
notes.ask("Another one?", max_tokens=20)
print(notes.at(answer.entry).ask("A darker one?", max_tokens=20, temperature=0.8).text)
print(len(notes.branches()), "branches")

# %% Leave; where a cell raised, the end of the kernel does it
local.__exit__(None, None, None)
