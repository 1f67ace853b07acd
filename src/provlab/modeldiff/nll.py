"""Mean token NLL of many short sequences: what Model-diff reads from a model, and all it reads.

Model-diff compares two models by one number for each input, the negative log-likelihood that a model gives to a whole
sequence, averaged over its tokens (paper, Sec. 4, "Experimental settings"). In the paper nothing stands before it: the
first token has no left context, and the mean is over the ``length - 1`` others. With a start before it, such as a start
token or a prompt, all tokens are predicted, and the mean is over all.
"""

import copy
import inspect
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from provlab.errors import InputError, InvalidWeightsError
from provlab.kept import Arrays
from provlab.modeldiff.key_values import with_room
from provlab.modeldiff.moves import Tokens
from provlab.reading.checkpoint import Checkpoint

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# At most so many logits at a time, of which two or three float32 copies are held: 64 MB each on a CPU, 1 GB on a GPU.
# Fixed, and not what happens to be free, so that a seed gives the same draws again.
LOGITS = {"cpu": 1 << 24, "cuda": 1 << 28}
JUDGED = {"cpu": 1 << 22, "cuda": 1 << 28}  # where sequences are judged: on a CPU so many stay near the caches
HELD = {"cpu": 1 << 30, "cuda": 1 << 33}  # and so many bytes of keys and values
_NEAR = 1 << 20  # numbers that are copied once more
_TOKENS, FEWEST = 1 << 12, 1 << 8  # and so many tokens: more gain nothing; fewer are slower than reading the weights


class SequenceNll:
    """The NLL of token sequences under one model. Make one with `sequence_nll`.

    Attributes
    ----------
    vocabulary
        Number of tokens; a sequence holds ids from 0 to ``vocabulary - 1``.
    ids
        ``(vocabulary,)``: the network's own id of each, where the tokens are those that it shares with other models;
        probabilities are then those given that no other token comes. None where they are the network's own.
    start
        ``(k,)``: the network's own ids of what stands before every sequence; often none.
    context
        Longest sequence (tokens) that the model reads behind the start, None where its config names no bound.
    evaluations
        Sequences sent through the network so far: the cost of a method, whatever the machine.
    name, network
        The model's label, and the model itself in evaluation mode.
    """

    def __init__(
        self, network: "PreTrainedModel", name: str, ids: NDArray[np.int64] | None, start: Sequence[int] = ()
    ) -> None:
        config = network.config.get_text_config()
        self.name = name
        whole = np.arange(int(config.vocab_size))
        self.ids = None if ids is None or np.array_equal(ids, whole) else ids
        self.vocabulary = len(whole if self.ids is None else self.ids)
        self._own = None if self.ids is None else torch.from_numpy(self.ids).to(network.device)
        bound = getattr(config, "max_position_embeddings", None)
        self.context: int | None = None if bound is None else int(bound) - len(start)
        self.start = torch.tensor(start, dtype=torch.int64, device=network.device)
        self._opened: tuple[torch.Tensor, Any] | None = None
        keeps = "logits_to_keep" in inspect.signature(network.forward).parameters
        self._last: dict[str, Any] = {"logits_to_keep": 1} if keeps else {}  # where the last place alone is asked for
        self.evaluations = 0
        self.network = network

    @property
    def spacing(self) -> float:
        """Step between the numbers next to 1 of the dtype in which the model runs."""
        return torch.finfo(self.network.dtype).eps

    def __call__(self, tokens: Tokens) -> NDArray[np.float64]:
        """Return the mean token NLL (nats) of each sequence.

        Parameters
        ----------
        tokens
            Token ids, ``(n, length)``.

        Returns
        -------
        array
            ``(n,)``, the mean over all predictions.

        Raises
        ------
        InputError
            An id is outside the vocabulary, or the sequences are longer than the model's context or too short to
            hold a prediction.
        InvalidWeightsError
            The model answers with NaN or Inf.
        """
        return np.asarray(self.each(tokens).mean(axis=1))

    def each(self, tokens: Tokens) -> NDArray[np.float64]:
        """Return the loss (nats) of every token that is predicted, ``(n, predictions)``; errors as of a call."""
        ids = self.checked(tokens, shortest=2)
        result = np.empty((len(ids), self.predictions(ids.shape[1])))
        done = 0
        for batch, log_probs in self.laws(ids):
            picked = log_probs.gather(2, batch[:, -log_probs.shape[1] :, None]).squeeze(2)
            result[done : done + len(batch)] = -picked.to("cpu", torch.float64).numpy()
            done += len(batch)
        self.refuse_non_finite(result)
        return result

    def predictions(self, length: int) -> int:
        """How many tokens of a sequence are predicted: all but the first, or all where something stands before it."""
        return length if len(self.start) else max(length - 1, 0)

    @property
    def log_first(self) -> float:
        """Log probability of a first token that nothing predicts: all are equally likely; 0 where one is predicted."""
        return 0.0 if len(self.start) else -math.log(self.vocabulary)

    def next_log_probs(self, prefix: Tokens) -> NDArray[np.float64]:
        """Return the log probability of each token after a prefix, ``(n, vocabulary)`` of ``(n, c)`` tokens.

        Where no token is there, the model says nothing, and all are equally likely.
        """
        ids = self.checked(prefix, shortest=0)
        if not self.predictions(ids.shape[1] + 1):
            return np.full((len(ids), self.vocabulary), -math.log(self.vocabulary))
        ends = ids.new_zeros(len(ids), 1)  # the token that is predicted: which one plays no part
        batches = self.laws(torch.cat([ids, ends], dim=1), last=1)
        result = torch.cat([log_probs[:, -1].cpu().double() for _, log_probs in batches]).numpy()
        self.refuse_non_finite(result.max(axis=1))
        return np.asarray(result)

    def rewrite(
        self, tokens: Tokens, cut: int, temper: NDArray[np.float64], seed: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Redraw all tokens from a place on from the model's conditional distributions.

        Parameters
        ----------
        tokens
            ``(n, length)``.
        cut
            The first position that is redrawn.
        temper
            ``(n,)`` powers that the distributions are raised to before they are normalised; 0 is uniform.
        seed
            The seed of the draws.

        Returns
        -------
        tuple
            The new sequences y, their mean token NLL ``(n,)``, and ``(n,)`` log q(x | y) - log q(y | x), where x are
            the given ones.
        """
        ids = self.checked(tokens, shortest=2)
        generator = self.generator(seed)
        first = self.predictions(cut)  # of the predictions, the first of a redrawn token
        new, nll, log_hastings = torch.empty_like(ids), np.empty(len(ids)), np.empty(len(ids))
        done = 0
        for batch, log_probs in self.laws(ids):
            rows = slice(done, done + len(batch))
            power = torch.from_numpy(temper[rows])[:, None]  # (rows, 1)
            predicted = batch[:, -log_probs.shape[1] :, None]
            kept = log_probs[:, :first].gather(2, predicted[:, :first]).double().sum(dim=(1, 2))
            tempered = torch.log_softmax(power.to(log_probs)[:, :, None] * log_probs[:, first:], dim=-1)
            back = tempered.gather(2, predicted[:, first:]).double().sum(dim=(1, 2))
            prefix = batch[:, :cut] if cut or len(self.start) else self.first(len(batch), generator)
            chances = self.chances(len(batch), batch.shape[1] - prefix.shape[1], generator)
            written, log_p, forth = self.write_on(prefix, batch.shape[1], power, chances)
            new[rows] = written.cpu()
            nll[rows] = -(kept.cpu() + log_p.cpu()).numpy() / log_probs.shape[1]
            log_hastings[rows] = (back.cpu() - forth[:, 0].cpu()).numpy()
            done += len(batch)
        self.refuse_non_finite(nll)
        return new.numpy(), nll, log_hastings

    @torch.inference_mode()
    def write_on(
        self, prefix: torch.Tensor, length: int, tempers: torch.Tensor, chances: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Continue sequences token by token, with a cache of keys and values.

        Parameters
        ----------
        prefix
            ``(n, c)`` tokens; one or more where nothing stands before (`first`).
        length
            The length of the whole sequences.
        tempers
            ``(n, k)`` powers of the conditional distributions: tokens are drawn by the first of each row.
        chances
            ``(n, length - c)`` float64 of `chances`: a number from 0 to 1 for each token, the same draws in whatever
            company. The arithmetic on log probabilities is done where they are.

        Returns
        -------
        tuple
            Whole sequences ``(n, length)``; log probability of the tokens that were written, the model's own ``(n,)``
            and under each power ``(n, k)``. A first token that nothing predicts is in neither.
        """
        (n, begin), device = prefix.shape, chances.device
        prefix, tempers = prefix.to(device), tempers.to(device, torch.float32)
        tokens = torch.empty(n, length, dtype=torch.int64, device=device)
        tokens[:, :begin] = prefix
        log_p = torch.zeros(n, dtype=torch.float64, device=device)
        log_q = torch.zeros(n, tempers.shape[1], dtype=torch.float64, device=device)
        answered, past = self._open(n)
        placed = False  # whether keys and values have the room for what is to come
        if not begin and answered is None:
            raise InputError("nothing stands before the first token: give it")
        read = prefix
        for position in range(begin, length):
            if read.shape[1]:
                answered, past = self.read(read, past_key_values=past, use_cache=True, **self._last)
                if not placed:  # the token written last is not read
                    past, placed = with_room(past, length - position - 1), True
            assert answered is not None  # without a start there is something to read
            plain = torch.log_softmax(answered[:, -1].to(device), dim=-1)  # (n, vocabulary)
            tempered = plain[:, None, :]  # (n, k, vocabulary)
            if not (tempers == 1).all():
                tempered = torch.log_softmax(tempered * tempers[:, :, None], dim=-1)
            # by inverting the cumulative sum, in double: a tenth of the time of torch.multinomial
            reached = torch.cumsum(tempered[:, 0].exp(), dim=-1, dtype=torch.float64)
            self.refuse_non_finite(reached[:, -1].cpu().numpy())  # the whole of each law
            drawn = chances[:, position - begin, None] * reached[:, -1:]
            read = torch.searchsorted(reached, drawn, right=True).clamp_(max=self.vocabulary - 1)
            tokens[:, position] = read[:, 0]
            log_q += tempered.gather(2, read[:, None, :].expand(*tempers.shape, 1)).squeeze(2).double()
            log_p += plain.gather(1, read).squeeze(1).double()
        self.evaluations += n
        return tokens, log_p, log_q

    def at_once(self, length: int, logits: int) -> int:
        """How many sequences can be written side by side.

        Parameters
        ----------
        length
            Tokens of each, whose keys and values are held.
        logits
            Numbers of each that are held together, one for every token of the vocabulary and law.
        """
        config, kind = self.network.config.get_text_config(), self.network.device.type
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        each = 2 * config.num_hidden_layers * heads * width * self.network.dtype.itemsize
        held = each * (length + len(self.start))
        return max(1, min(LOGITS.get(kind, LOGITS["cpu"]) // logits, HELD.get(kind, HELD["cpu"]) // held))

    def generator(self, seed: int) -> torch.Generator:
        """Random numbers for `chances` and `first`, on the model's device."""
        on_gpu = self.network.device.type == "cuda"  # elsewhere in float64, which not every other device has
        return torch.Generator(self.network.device if on_gpu else "cpu").manual_seed(seed)

    def first(self, n: int, generator: torch.Generator) -> torch.Tensor:
        """Draw a first token that nothing predicts, ``(n, 1)``: all are equally likely."""
        return torch.randint(self.vocabulary, (n, 1), generator=generator, device=generator.device)

    @staticmethod
    def chances(n: int, places: int, generator: torch.Generator) -> torch.Tensor:
        """Numbers from 0 to 1 that decide tokens, ``(n, places)`` float64."""
        return torch.rand(places, n, dtype=torch.float64, generator=generator, device=generator.device).T

    def read(self, tokens: torch.Tensor, **settings: Any) -> tuple[torch.Tensor, Any]:
        """Send token ids ``(n, length)`` through the network.

        Returns
        -------
        tuple
            Logits of the comparison's tokens, ``(n, length, vocabulary)``, and the cache where `settings` ask for one.
        """
        tokens = tokens.to(self.network.device)
        return self._answer(tokens if self._own is None else self._own[tokens], **settings)

    def _answer(self, own: torch.Tensor, **settings: Any) -> tuple[torch.Tensor, Any]:
        out = self.network(input_ids=own, **settings)
        logits = out.logits[..., : self.vocabulary] if self._own is None else out.logits[..., self._own]
        return logits.float(), getattr(out, "past_key_values", None)

    def _open(self, n: int) -> tuple[torch.Tensor | None, Any]:
        """Logits behind the start, ``(n, 1, vocabulary)``, and a cache that holds it; nothing where there is none."""
        if not len(self.start):
            return None, None
        if self._opened is None:  # read once: a prompt may be much longer than what follows
            logits, past = self._answer(self.start[None], use_cache=True, **self._last)
            self._opened = logits[:, -1:], past
        logits, past = self._opened[0], copy.deepcopy(self._opened[1])
        past.batch_repeat_interleave(n)
        return logits.expand(n, -1, -1), past

    def laws(self, ids: torch.Tensor, last: int | None = None) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield some sequences after others, with the log probabilities that predict their last tokens.

        Each is ``(rows, length)`` tokens and ``(rows, predictions, vocabulary)``; of the `last` tokens alone, where
        that is given and fewer: behind a long context the other laws are not made.
        """
        most = JUDGED.get(self.network.device.type, JUDGED["cpu"])
        few = last is not None and last < ids.shape[1]
        law = most // self.vocabulary if not few else most // self.vocabulary * ids.shape[1] // max(1, last or 1)
        at_once = max(1, min(_TOKENS, max(FEWEST, law)) // ids.shape[1])
        some = {"logits_to_keep": last} if few and self._last else {}
        for begin in range(0, len(ids), at_once):
            batch = ids[begin : begin + at_once].to(self.network.device)
            self.evaluations += len(batch)
            yield batch, self._laws(batch, last if few else None, some)  # under no name here, so that it can be let go

    @torch.inference_mode()
    def _laws(self, batch: torch.Tensor, last: int | None, some: dict[str, Any]) -> torch.Tensor:
        """Log probabilities of a batch; logits, which are as large, are let go before they are used."""
        first, past = self._open(len(batch))
        answered = [] if first is None or last is not None else [first]
        if batch.shape[1] > 1:  # the last position predicts a token that is not there
            read = self.read(batch[:, :-1], past_key_values=past, use_cache=past is not None, **some)[0]
            answered.append(read[:, -last:] if last else read)
        if len(answered) == 1:
            return torch.log_softmax(answered[0], dim=-1)
        start, others = answered
        laws = others.new_empty(len(batch), 1 + others.shape[1], self.vocabulary)
        laws[:, :1] = torch.log_softmax(start[:1], dim=-1)  # the same before every sequence
        few = max(1, _NEAR // others[0].numel())
        for own, law in zip(others.split(few), laws.split(few), strict=True):  # in place of another copy of all
            law[:, 1:] = torch.log_softmax(own, dim=-1)
        return laws

    def checked(self, tokens: Tokens, *, shortest: int) -> torch.Tensor:
        array = np.asarray(tokens)
        if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
            raise InputError(f"tokens must be integers of shape (n, length), not {array.dtype} of shape {array.shape}")
        length = array.shape[1]
        if length < shortest:
            raise InputError(
                f"sequences must have at least {shortest} tokens, not {length}: the first token is not predicted"
            )
        if self.context is not None and length > self.context:
            raise InputError(f"sequences of {length} tokens exceed the context of {self.name}: {self.context}")
        if array.size and not (array.min() >= 0 and array.max() < self.vocabulary):
            wrong = array[(array < 0) | (array >= self.vocabulary)][0]
            raise InputError(f"token {wrong} is outside the vocabulary of {self.name}: 0 to {self.vocabulary - 1}")
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64))

    def refuse_non_finite(self, values: NDArray[np.floating[Any]]) -> None:
        """Raise InvalidWeightsError unless all of these numbers of the model are finite."""
        if not np.isfinite(values).all():
            raise InvalidWeightsError(f"{self.name}: the NLL is NaN or Inf; its weights are damaged, or need float32")


def judge(nll: SequenceNll, tokens: NDArray[np.int64]) -> Arrays:
    """Return the mean loss of ``(n, length)`` sequences as ``nll``, to be kept."""
    return {"nll": nll(tokens)}


def sequence_nll(
    model: "Checkpoint | PreTrainedModel",
    *,
    ids: NDArray[np.int64] | None = None,
    start: Sequence[int] = (),
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> SequenceNll:
    """Make a model ready to judge token sequences.

    Parameters
    ----------
    model
        A checkpoint of a causal language model, or a model already loaded, which stays where it is.
    ids
        The model's own ids of the tokens of the comparison (`provlab.modeldiff.tokens`); all of its own by default.
    start
        Its own ids of what stands before every sequence.
    device, dtype
        Where and in which precision to load a checkpoint; logits are taken further in float32.

    Raises
    ------
    InputError
        The model has no head that predicts tokens.
    """
    if isinstance(model, Checkpoint):
        name, network = model.name, model.load_model(dtype, device)
    else:
        name, network = type(model).__name__, model.eval()
    if not network.can_generate():
        raise InputError(f"{name} ({type(network).__name__}) is no causal language model: it predicts no next token")
    return SequenceNll(network, name, ids, start)
