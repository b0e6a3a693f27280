# SPDX-License-Identifier: Apache-2.0
"""Generators: results that are read while the method goes on, from actors, asynchronous actors and functions."""
import asyncio

import ray


@ray.remote
class Tokenizer:
    def split(self, text):
        for number, word in enumerate(text.split()):
            if word == "!":
                raise ValueError("no word: !")
            yield f"{number}:{word}"

    @ray.method(num_returns=2)
    def ends(self, text):
        words = text.split()
        return words[0], words[-1]


@ray.remote
class Engine:
    async def generate(self, prompt, count):
        for number in range(count):
            await asyncio.sleep(0.01)
            yield prompt + "." * number


@ray.remote
def powers(base, count):
    value = 1
    for _ in range(count):
        yield value
        value *= base


@ray.remote
def total(*numbers):
    return sum(numbers)


ray.init(num_cpus=4)
tokenizer = Tokenizer.remote()

for ref in tokenizer.split.remote("the quick brown fox"):
    print("item:", ray.get(ref))

first, last = tokenizer.ends.remote("one two three")
print("ends:", ray.get(first), ray.get(last))

try:
    for ref in tokenizer.split.remote("good then ! bad"):
        print("item:", ray.get(ref))
except ValueError as error:
    print(type(error).__name__, isinstance(error, ray.exceptions.RayTaskError))

generator = powers.remote(3, 5)
print("next:", ray.get(next(generator)), ray.get(next(generator)))
print("sum of the rest:", ray.get(total.remote(*generator)))
print("after the end:", next(generator, "nothing"))


async def main():
    engine = Engine.remote()
    async for ref in engine.generate.remote("async", 3):
        print("async item:", await ref)

asyncio.run(main())

generators = [powers.remote(2, 3), powers.remote(5, 3)]
values = []
while generators:
    ready, generators = ray.wait(generators)
    for generator in ready:
        try:
            values.append(ray.get(next(generator)))
            generators.append(generator)
        except StopIteration:
            pass
print("of both:", sorted(values))
