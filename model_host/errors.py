"""The host's error tree; spec/10-errors lists each reason with its cause and remedy.

    HostError
    ├── ModelFileError
    │   ├── ModelFileMissing          no file at the path, or none of this name in the folder
    │   ├── ModelFileChanged          a file that was written or replaced while it was read
    │   ├── ModelFileInvalid          not a model file, or its header breaks the format
    │   ├── ModelFileTruncated        the file ends before its last tensor does
    │   ├── ModelArchitectureUnknown  an architecture, option or tensor unknown to the engine
    │   ├── ModelTensorMissing        a tensor the architecture needs is absent or misshapen
    │   └── ModelUnknown, ModelMissing, ModelDigestMismatch, ModelDownloadFailed,
    │       PackageIndexUnreachable, ModelFileUnwritable: model_host/io/fetch.py
    ├── NumericsUnsupported           a number format this machine or model file can't run
    ├── ProfileTooLarge               a profile larger than the memory for all
    ├── TokenizerUnknown              a tokenizer kind the host can't rebuild
    ├── LogitsInvalid                 logits that are NaN, or no token left to choose
    ├── GrammarFailed                 a grammar that allows no token, or takes too long
    ├── PrefillCancelled              the caller cancelled between two steps
    ├── CacheBudgetExceeded           one conversation alone needs more KV memory than allowed
    ├── CacheBusy                     the memory is held by conversations that generate now
    ├── HostKeyShared                 a request that another process with this key has sealed
    ├── OwnerNotServed                a conversation of a creator that the policy leaves out
    ├── RenderingInterrupted          the process of a template was ended, or does not answer
    ├── ReplayBusy                    another conversation is being replayed
    ├── ReplayTooLarge                more branches and tokens than one replay holds
    ├── CheckpointError
    │   ├── CheckpointMissing         no stored checkpoint fits the tokens
    │   ├── CheckpointCorrupt         stored bytes fail a length, digest, MAC or lineage check
    │   ├── CheckpointTooLarge        one checkpoint alone exceeds the disk budget
    │   ├── CheckpointDropped         pages evicted, or the host stopped, before they were written
    │   └── CheckpointWriteFailed
    │       └── CheckpointDiskFull    the file system refused more bytes
    ├── ArchiveError
    │   ├── ArchiveInvalid            bytes of a checkpoint archive were changed, cut off or moved
    │   └── ArchiveForeign            an archive of another key ring, model, numerics or owner
    └── GenerationRefused             a request that can't be answered: model_host/refusals.py

A checkpoint error reaches a user of Export alone: all others prefill instead, and count the error.
"""

from replica.errors import HostError


class ModelFileError(HostError):
    """The model file can't be used."""

    reason = "MODEL_FILE_UNUSABLE"
    next_step = (
        "Give the path of another GGUF file or model folder, or a name of `antiphon model list`."
    )


class ModelFileMissing(ModelFileError):
    """There is no model file at this path, or a folder lacks one."""

    reason = "MODEL_FILE_MISSING"


class ModelFileChanged(ModelFileError):
    """The model file was changed or replaced while it was read."""

    reason = "MODEL_FILE_CHANGED"
    next_step = "Try again once nothing writes the file."
    retryable = True


class ModelFileInvalid(ModelFileError):
    """A file isn't a GGUF of a version this host reads, or a folder's file isn't sound."""

    reason = "MODEL_FILE_INVALID"


class ModelFileTruncated(ModelFileError):
    """The model file ends too early."""

    reason = "MODEL_FILE_TRUNCATED"
    next_step = "Download the model again."


class ModelArchitectureUnknown(ModelFileError):
    """The engine doesn't run this architecture."""

    reason = "MODEL_ARCHITECTURE_UNKNOWN"
    next_step = "Choose a dense model of the llama, mistral, qwen2 or qwen3 family."


class ModelTensorMissing(ModelFileError):
    """The model file lacks a tensor, or has it in another shape."""

    reason = "MODEL_TENSOR_MISSING"
    next_step = "Choose a complete GGUF file; adapters and parts of a split file don't run alone."


class NumericsUnsupported(HostError):
    """The machine, or the model file, can't run the number format."""

    reason = "NUMERICS_UNSUPPORTED"
    next_step = "Choose bf16 or fp32, or for q4 a GGUF in Q4_0, Q4_1 or Q4_K on a CPU with AVX2."


class ProfileTooLarge(HostError):
    """One profile alone needs more memory than the host has for all."""

    reason = "PROFILE_TOO_LARGE"
    next_step = "Raise the host's memory_bytes_max, or lower its kv_bytes_max."


class TokenizerUnknown(HostError):
    """The host can't rebuild this kind of tokenizer."""

    reason = "TOKENIZER_UNKNOWN"
    next_step = (
        "Choose a model with a byte-level or SentencePiece BPE tokenizer; "
        "of a GGUF, try the Hugging Face folder, which describes its pre-tokenizer."
    )


class LogitsInvalid(HostError):
    """The logits have a NaN, or leave no token to choose."""

    reason = "LOGITS_INVALID"
    next_step = "Send the request again; if the error repeats, check the model file."


class GrammarFailed(HostError):
    """The grammar of an answer allows no token here, or reached a limit of its engine."""

    reason = "GRAMMAR_FAILED"
    next_step = "Simplify the schema, expression or grammar, and ask again without continuing."


class PrefillCancelled(HostError):
    """The caller cancelled between two steps; the cache keeps the finished ones."""

    reason = "PREFILL_CANCELLED"
    next_step = "Send the request again if the answer is still wanted."
    retryable = True


class CacheBudgetExceeded(HostError):
    """One conversation needs more KV memory than the host allows."""

    reason = "CACHE_BUDGET_EXCEEDED"
    next_step = "Raise the host's KV budget, or branch off earlier in the conversation."


class CacheBusy(HostError):
    """The KV memory is in use by conversations that generate now."""

    reason = "CACHE_BUSY"
    next_step = "Wait until a generation ends, or raise the host's KV budget."
    retryable = True


class HostKeyShared(HostError):
    """Another process has this host's key, and has sealed a request."""

    reason = "HOST_KEY_SHARED"
    next_step = "Stop one of the two processes, or give it an identity.key of its own."


class OwnerNotServed(HostError):
    """The host's operator serves the conversations of certain keys alone, and not of this one."""

    reason = "OWNER_NOT_SERVED"
    next_step = (
        "Ask the host's operator to add your key with --owner-key, or give them a code of"
        " `antiphon invite NAME --role host`. Or grant another host."
    )


class RenderingInterrupted(HostError):
    """The process that renders contexts was ended, or did not answer in time."""

    reason = "RENDERING_INTERRUPTED"
    next_step = "Ask again; if it repeats, the host's operator should look at the machine's memory."
    retryable = True


class ReplayBusy(HostError):
    """The host replays another conversation; it does one at a time."""

    reason = "REPLAY_BUSY"
    next_step = "Try again when that replay has ended, or ask another host."
    retryable = True


class ReplayTooLarge(HostError):
    """The conversation has too many branches and tokens for one replay."""

    reason = "REPLAY_TOO_LARGE"
    next_step = "Give an entry to begin from, so that fewer answers are checked."


class CheckpointError(HostError):
    """A checkpoint can't be written or restored."""

    reason = "CHECKPOINT_FAILED"
    next_step = "Do nothing: the host prefills from the log and counts the error."
    retryable = True


class CheckpointMissing(CheckpointError):
    """No checkpoint fits these tokens."""

    reason = "CHECKPOINT_MISSING"
    next_step = "Send a message, wait until the host has stored what it computed, and try again."


class CheckpointCorrupt(CheckpointError):
    """Stored bytes fail a check; they are quarantined and not read again."""

    reason = "CHECKPOINT_CORRUPT"
    next_step = (
        "Do nothing: the host computes the context again, and stores it with the next answer."
    )


class CheckpointTooLarge(CheckpointError):
    """The checkpoint alone exceeds the disk budget."""

    reason = "CHECKPOINT_TOO_LARGE"
    next_step = "Raise the host's checkpoint budget."
    retryable = False


class CheckpointWriteFailed(CheckpointError):
    """The file system failed while a checkpoint was written; nothing of it remains."""

    reason = "CHECKPOINT_WRITE_FAILED"
    next_step = "Check the disk of the host's cache folder."

    def for_peer(self) -> "CheckpointWriteFailed":
        """Return the error without its detail, which names paths of this machine."""
        return type(self)()


class CheckpointDiskFull(CheckpointWriteFailed):
    """The disk has no room beside what stays free for the log; nothing remains."""

    reason = "CHECKPOINT_DISK_FULL"
    next_step = "Free space on the disk of the host's cache folder."


class CheckpointDropped(CheckpointError):
    """The pages were evicted, or the host stopped, before the checkpoint was written."""

    reason = "CHECKPOINT_DROPPED"
    next_step = "Do nothing: the next turn writes the checkpoint, or the host computes again."


class ArchiveError(HostError):
    """A checkpoint archive can't be used."""

    reason = "ARCHIVE_UNUSABLE"
    next_step = "Do nothing: the host computes the context from the log."


class ArchiveInvalid(ArchiveError):
    """The archive's bytes were changed, cut off, reordered, or belong elsewhere."""

    reason = "ARCHIVE_INVALID"
    next_step = "Export the checkpoint again, and import the file unchanged."


class ArchiveForeign(ArchiveError):
    """The archive comes from another key ring, model, numerics class or owner."""

    reason = "ARCHIVE_FOREIGN"
    next_step = "Import it at a host with the same model and numerics, and a copy of the key ring."
