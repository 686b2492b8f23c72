"""call-key.json: an author, a text and a message → the two digests of a call key."""

from spec.vectors.make.build import Key, one_field, pae, said, sha256


def _vector(comment: str, author: str, text: str, words: str) -> dict[str, object]:
    key = pae("antiphon/v1/call-key", Key(author).public + text.encode())
    call = pae("antiphon/v1/call", said(words))
    fields = one_field(1, sha256(key)) + one_field(2, sha256(call)) + one_field(3, 2)
    return {
        "name": author,
        "comment": comment,
        "author": Key(author).public.hex(),
        "text": text,
        "words": words,
        "call_key": fields.hex(),
    }


def build() -> dict[str, object]:
    """Return the file."""
    return {
        "file": "call-key",
        "spec": "spec/02-entry §7",
        "comment": "The CallKey of attempt 2 for a text and a message of the user with one text"
        " part.",
        "vectors": [
            _vector("a job", "ada", "job-17", "Book two nights."),
            _vector("another author's key is another key", "bob", "job-17", "Book two nights."),
            _vector("texts are UTF-8", "ada", "Übung \U0001f4a1", "Hé."),
        ],
    }
