# SPDX-License-Identifier: Apache-2.0
"""Rewards of many answers, each within its time, without a job."""
import array
import asyncio
import time

import pytest

from tandem._job_rewards import Scorer
from tandem.job import Completion, RewardRequest


def requests(*prompts):
    return [RewardRequest(prompt, "", Completion(array.array("i", [1, 2]), array.array("f", [0, 0]), prompt))
            for prompt in prompts]


def test_a_late_reward_delays_no_other():
    def reward(prompt, answer, completion):
        if prompt == "late":
            time.sleep(3)
        return len(completion.text)

    began = time.monotonic()
    results = Scorer(reward, False, 0.4).score(requests("a", "late", "abc", "late"))
    assert time.monotonic() - began < 2.5
    assert [result[0] for result in results] == [1, 0, 3, 0]
    assert [result[2] for result in results] == [
        None, "TimeoutError: no reward within 400 ms (rollout.reward_timeout_ms)"] * 2


def test_coroutines_run_at_the_same_time_and_are_canceled():
    ended = []

    async def reward(prompt, answer, completion):
        try:
            await asyncio.sleep(30 if prompt == "late" else 0.05)
        except asyncio.CancelledError:
            ended.append(prompt)
            raise
        return 1

    began = time.monotonic()
    results = Scorer(reward, False, 1).score(requests(*(["on time"] * 50), "late"))
    assert time.monotonic() - began < 20 and ended == ["late"]
    assert [result[0] for result in results] == [1] * 50 + [0]


def test_token_rewards_have_the_length_of_the_answer():
    right = Scorer(lambda prompt, answer, completion: (1, [0.5, 2]), False, 1).score(requests("a"))
    assert right == [(1.0, array.array("f", [0.5, 2]).tobytes(), None)]
    wrong = Scorer(lambda prompt, answer, completion: (1, [0.5]), False, 1).score(requests("a"))
    assert wrong == [(0.0, None, "ValueError: 1 token rewards for 2 tokens")]


def test_a_batch_fails_as_a_whole_or_by_answer():
    assert Scorer(lambda requests: [1.0], True, 1).score(requests("a", "b"))[1][2] == \
        "ValueError: 1 rewards for 2 answers"
    results = Scorer(lambda requests: [1.0, KeyError("b")], True, 1).score(requests("a", "b"))
    assert results == [(1.0, None, None), (0.0, None, "KeyError: 'b'")]


def test_too_many_late_rewards_end_the_call():
    def reward(prompt, answer, completion):
        time.sleep(0.3)

    with pytest.raises(TimeoutError, match="17 rewards have taken longer than 0.01 s"):
        Scorer(reward, False, 0.01).score(requests(*["late"] * 40))
