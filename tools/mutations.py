"""The mistakes that ``mutate.py`` plants, at least one for each known mistake that can occur."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """A change of one place of the sources."""

    pitfall: int
    """Its number in ``tests/pitfalls.py``, which names the tests that catch it."""

    file: str
    """Below ``src/verigrad``."""

    old: str
    """What stands there, exactly once in the file."""

    new: str
    """What stands there instead."""

    def __str__(self) -> str:
        """The number, the file, and the first line that the change brings."""
        return f"{self.pitfall} {self.file}: {self.new.strip().splitlines()[0][:60]}"


MUTATIONS = (
    Mutation(
        1,
        "training/step.py",
        "output.loss.backward()",
        "(output.loss / len(passes)).backward()",
    ),
    Mutation(
        2,
        "batch/cutting.py",
        "weights = algorithm.aggregation(batch.mask, batch.group_index)",
        "present = torch.arange(batch.mask.shape[1]) < batch.lengths.unsqueeze(1)\n"
        "    weights = (batch.mask * algorithm.aggregation(present, batch.group_index))",
    ),
    Mutation(
        3,
        "batch/cutting.py",
        "else torch.where(chosen, weights, 0.0)",
        "else algorithm.aggregation(batch.mask & chosen, batch.group_index)",
    ),
    Mutation(
        3,
        "batch/cutting.py",
        "weights=weights if chosen",
        "weights=algorithm.aggregation(batch.mask & (batch.correction != 0), batch.group_index)\n"
        "        if batch.correction is not None\n"
        "        else weights if chosen",
    ),
    Mutation(
        4,
        "core/aggregation.py",
        "torch.tensor(len(mask) * length)",
        "torch.tensor(len(mask) * mask.shape[1])",
    ),
    Mutation(
        6,
        "batch/cutting.py",
        "        yield weighted(\n"
        "            select_rows(batch, rows), algorithm, None if chosen is None else "
        "chosen[rows, :width]\n"
        "        )",
        "        yield select_rows(batch, rows)",
    ),
    Mutation(
        7,
        "policies/forward.py",
        "    return torch.cat(parts)\n",
        "    return torch.cat(parts) / len(parts)\n",
    ),
    Mutation(
        8,
        "core/losses.py",
        "return seen(-advantages * row_mean(kept, mask).exp(), mask)",
        "return seen(-advantages * row_mean(kept, mask).exp() / len(mask), mask)",
    ),
    Mutation(
        9,
        "core/aggregation.py",
        "return _share(mask, mask.sum())",
        "return _share(mask, mask.sum(dim=1).clamp(min=1).sum())",
    ),
    Mutation(
        10,
        "core/aggregation.py",
        "denominator.to(mask.device).double().clamp(min=1)",
        "denominator.to(mask.device).double()",
    ),
    Mutation(
        11,
        "core/aggregation.py",
        "return _share(mask, ((tokens > 0).sum() * tokens[group_index]).unsqueeze(1))",
        "return _share(mask, mask.sum())",
    ),
    Mutation(
        12,
        "core/advantages.py",
        "torch.where(group.has_signal(), group.centred() / (group.deviation(ddof) + eps), 0.0)",
        "torch.where(group.size > 1, group.centred() / (group.deviation(ddof) + eps), rewards)",
    ),
    Mutation(
        13,
        "core/advantages.py",
        "return spread > EQUAL_WITHIN * scale",
        "return spread >= 0 * scale",
    ),
    Mutation(
        14,
        "core/advantages.py",
        "return spread > EQUAL_WITHIN * scale",
        "return spread > 0 * scale",
    ),
    Mutation(
        15,
        "core/advantages.py",
        "    return group.centred() * group.size / (group.size - 1).clamp(min=1)",
        "    others = (group.size - 1).clamp(min=1)\n"
        "    mean = (group.sum(rewards) - rewards) / others\n"
        "    square = (group.sum(rewards.square()) - rewards.square()) / others\n"
        "    return (rewards - mean) / ((square - mean.square()).clamp(min=0).sqrt() + 1e-6)",
    ),
    Mutation(
        16,
        "core/advantages.py",
        "self.group_index = group_index\n",
        "self.group_index = group_index.sort().values\n",
    ),
    Mutation(
        17,
        "batch/making.py",
        "group_index=torch.arange(len(groups)).repeat_interleave(sizes).to(device)",
        "group_index=torch.tensor(\n"
        "            [[g[0].prompt for g in groups].index(g[0].prompt) for g in groups]\n"
        "        ).repeat_interleave(sizes)",
    ),
    Mutation(
        18,
        "core/advantages.py",
        "    if not rewards.isfinite().all():",
        "    rewards.nan_to_num_(0.0, 0.0, 0.0)\n    if not rewards.isfinite().all():",
    ),
    Mutation(
        18,
        "verifiers/boundary.py",
        "return Verdict.failed(describe(error))",
        "return Verdict.scored(0.0)",
    ),
    Mutation(
        18,
        "types.py",
        "return tuple(r for r in self.rollouts if r.verdict.reward is not None)\n",
        "return tuple(\n"
        "            Rollout(prompt=r.prompt, completion=r.completion,\n"
        "                    verdict=r.verdict if r.verdict.reward is not None\n"
        "                    else Verdict.scored(0.0))\n"
        "            for r in self.rollouts\n"
        "        )\n",
    ),
    Mutation(
        19,
        "core/advantages.py",
        "return group.centred() * group.size / (group.size - 1).clamp(min=1)",
        "return group.centred()",
    ),
    Mutation(
        20,
        "core/advantages.py",
        "    if (rewards < 0).any():",
        "    if (rewards < -float('inf')).any():",
    ),
    Mutation(
        21,
        "core/advantages.py",
        "    seen = values[mask]\n",
        "    seen = values[mask.any(dim=1)][:, 0]\n",
    ),
    Mutation(
        22,
        "core/advantages.py",
        "return torch.where(group.has_signal(), group.centred() / (group.deviation(ddof) + eps), "
        "0.0)",
        "return _whitened((group.centred() / (group.deviation(ddof) + eps)).unsqueeze(1),\n"
        "                     torch.ones(len(rewards), 1, dtype=torch.bool)).squeeze(1)",
    ),
    Mutation(
        24,
        "training/step.py",
        "scores = policy.score(batch, temperature, entropy_gradient=bonus",
        "scores = policy.score(batch, 1.0, entropy_gradient=bonus",
    ),
    Mutation(
        24,
        "training/step.py",
        "scores = policy.score(some, temperature, shared=shared[0])",
        "scores = policy.score(some, 1.0, shared=shared[0])",
    ),
    Mutation(
        25,
        "engines/local.py",
        "token_log_probs(logits, chosen, sampling.temperature, states)",
        "token_log_probs(logits, chosen, 1.0, states)",
    ),
    Mutation(
        26,
        "core/logprobs.py",
        "    logits = tempered(logits, temperature)\n    normalisers",
        "    return logits.log_softmax(-1).gather(-1, token_ids.unsqueeze(-1)).squeeze(-1) / (\n"
        "        temperature or 1\n"
        "    )\n    normalisers",
    ),
    Mutation(
        28,
        "core/logprobs.py",
        "    logits = tempered(logits, temperature)\n    probabilities",
        "    logits = tempered(logits, 1.0)\n    probabilities",
    ),
    Mutation(
        28,
        "core/logprobs.py",
        "finite = torch.where(probabilities > 0, logits, 0.0)",
        "finite = logits",
    ),
    Mutation(
        28,
        "policies/tabular.py",
        "entropy(logits if entropy_gradient else logits.detach(), temperature)",
        "entropy(logits.detach(), temperature)",
    ),
    Mutation(
        28,
        "policies/causal_lm.py",
        "entropy(outputs if entropy_gradient else outputs.detach(), temperature)",
        "entropy(outputs.detach(), temperature)",
    ),
    Mutation(
        28,
        "core/head.py",
        "return log_probs, entropy if entropy_gradient else entropy.detach()",
        "return log_probs, entropy.detach()",
    ),
    Mutation(
        29,
        "core/ratios.py",
        "    return torch.where(mask, values, 0.0)\n",
        "    return values * mask\n",
    ),
    Mutation(
        30,
        "core/logprobs.py",
        "        logits = logits.float()\n",
        "        logits = logits.clone()\n",
    ),
    Mutation(
        31,
        "training/step.py",
        "old[part, :width] = scores",
        "old[: len(part), :width] = scores",
    ),
    Mutation(
        32,
        "policies/causal_lm.py",
        "self.module = model.eval()",
        "self.module = model",
    ),
    Mutation(
        33,
        "policies/causal_lm.py",
        "torch.tensor([len(prompt) - 1 for prompt in prompts]",
        "torch.tensor([max(0, len(prompt) - 2) for prompt in prompts]",
    ),
    Mutation(
        34,
        "policies/continuation.py",
        "self._next_position = self._prompts.lengths\n",
        "self._next_position = torch.full_like(\n"
        "            self._prompts.lengths, int(self._prompts.lengths.max())\n        )\n",
    ),
    Mutation(
        35,
        "core/kl.py",
        "    ratio = token_ratio(log_probs, old_log_probs, mask)\n",
        "    ratio = token_ratio(log_probs, old_log_probs, mask).detach()\n",
    ),
    Mutation(
        35,
        "core/kl.py",
        "return value.detach() + carrier - carrier.detach()",
        "return value + carrier.detach() - carrier.detach()",
    ),
    Mutation(
        36,
        "algorithms/build.py",
        '    "ratio_k1": kl.ratio_k1,\n',
        '    "ratio-k1": kl.ratio_k1,\n',
    ),
    Mutation(
        36,
        "algorithms/build.py",
        '"geometric_masked": ("low", "high", "cap")',
        '"geometric_masked": ("low", "high", "caps")',
    ),
    Mutation(37, "core/kl.py", "limit: float | None = None,", "limit: float | None = 10.0,"),
    Mutation(
        38,
        "training/step.py",
        "per_token = per_token * batch.correction",
        "assert algorithm.correction is not None\n"
        "        per_token = per_token * algorithm.correction(\n"
        "            new.detach(), batch.sampling_log_probs, batch.mask\n"
        "        )",
    ),
    Mutation(
        39,
        "core/corrections.py",
        "ratio = row_product(old_log_probs, sampling_log_probs, mask).clamp(max=cap)",
        "ratio = row_mean_ratio(old_log_probs, sampling_log_probs, mask).clamp(max=cap)",
    ),
    Mutation(
        40,
        "training/step.py",
        "(old - batch.sampling_log_probs).abs()",
        "(old - batch.sampling_log_probs).abs().clamp(max=0.7)",
    ),
    Mutation(
        41,
        "core/losses.py",
        ".detach().clamp(1 - clip_low, 1 + clip_high)",
        ".detach().clamp(1 - clip_low, clip_high)",
    ),
    Mutation(
        42,
        "algorithms/rules.py",
        "r.loss in SEQUENCE_LOSSES and r.aggregation not in ROW_MEANS",
        "False",
    ),
    Mutation(
        42,
        "core/ratios.py",
        "return bounded(row_mean(log_ratio(log_probs, others, mask), mask)).exp()",
        "return row_product(log_probs, others, mask)",
    ),
    Mutation(
        43,
        "algorithms/algorithm.py",
        "return self.updates > 1 or",
        "return self.epochs > 1 or",
    ),
    Mutation(
        43,
        "training/schedule.py",
        "for epoch in range(algorithm.epochs)",
        "for epoch in range(1)",
    ),
    Mutation(
        44,
        "batch/carriers.py",
        "for weights in (self.kl_weights, self.entropy_weights):",
        "for weights in (self.entropy_weights,):",
    ),
    Mutation(
        45,
        "training/step.py",
        "    if done is None:\n        return None\n    output = done",
        "    if done is None or abs(float(done.output.loss)) < 1e-6:\n"
        "        return None\n    output = done",
    ),
    Mutation(46, "algorithms/presets.py", "overlong_share=0.2,", "overlong_share=0.1,"),
    Mutation(
        47,
        "batch/making.py",
        "mask=(present & trains.unsqueeze(1)).to(device)",
        "mask=(\n"
        "            present\n"
        "            & (\n"
        "                _filled(present, [r.completion.token_ids for r in rows], torch.int64)\n"
        "                != rows[0].completion.token_ids[-1]\n"
        "            )\n"
        "        ).to(device)",
    ),
    Mutation(
        48,
        "batch/making.py",
        "mask=(present & trains.unsqueeze(1)).to(device)",
        "mask=(\n"
        "            present\n"
        "            | torch.tensor([[r.completion.finish is Finish.TRUNCATED] for r in rows])\n"
        "        ).to(device)",
    ),
    Mutation(
        49,
        "engines/local.py",
        "token_ids=tuple(ids)",
        "token_ids=tuple(self._policy.tokenizer.encode(self._policy.decode(ids)))",
    ),
    Mutation(
        50,
        "policies/packing.py",
        "inside = (own <= query) & (query < packed.end[own])",
        "again = packed.position[own].diff() < 0\n"
        "    part = torch.nn.functional.pad(again.long().cumsum(0), (1, 0))\n"
        "    inside = (own <= query) & (part.unsqueeze(1) == part)",
    ),
    Mutation(
        51,
        "batch/making.py",
        "return rows if has_signal or algorithm.counts_no_signal else ()",
        "shaped = algorithm.punish_length is not None\n"
        "    return rows if has_signal or shaped or algorithm.counts_no_signal else ()",
    ),
    Mutation(
        52,
        "policies/packing.py",
        "inside = (own <= query) & (query < packed.end[own])",
        "inside = own <= query",
    ),
    Mutation(
        53,
        "engines/local.py",
        "self._policy = policy\n",
        "self._policy = __import__('copy').deepcopy(policy)\n",
    ),
    Mutation(
        54,
        "policies/continuation.py",
        "self._prompts, self._logits = self._run_prompts(prompts)",
        "import copy\n\n"
        "        kept = model.__dict__.setdefault('kept', {})\n"
        "        if str(prompts) not in kept:\n"
        "            kept[str(prompts)] = self._run_prompts(prompts)\n"
        "        self._prompts, self._logits = copy.deepcopy(kept[str(prompts)])",
    ),
    Mutation(
        55,
        "engines/local.py",
        "draws.key(slot, number)",
        "draws.key(slot, 0)",
    ),
    Mutation(
        56,
        "batch/making.py",
        "rows = tuple(row for row in rows if row.completion.policy_version >= oldest)",
        "rows = rows if rows and rows[0].completion.policy_version >= oldest else ()",
    ),
    Mutation(
        57,
        "training/metrics.py",
        "rewards = [reward for group in groups for reward in group.rewards]",
        "rewards = [r - statistics.fmean(g.rewards) for g in groups for r in g.rewards]",
    ),
)
"""In the order of the table."""
