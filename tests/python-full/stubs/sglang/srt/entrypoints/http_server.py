# SPDX-License-Identifier: Apache-2.0
"""Stands for SGLang's server: it answers over HTTP what slime and the router ask, with random answers of no model."""
import random

from aiohttp import web


class Server:
    """One server: the version of its weights, and answers to requests."""

    def __init__(self, server_args):
        self.server_args = server_args
        self.weight_version = "0"

    async def generate(self, request):
        """Answer a prompt with one to max_new_tokens tokens, all the same one."""
        body = await request.json()
        count = random.randint(1, body["sampling_params"]["max_new_tokens"])
        about = {
            "id": "1", "weight_version": self.weight_version, "finish_reason": {"type": "stop"},
            "prompt_tokens": len(body.get("input_ids") or []), "completion_tokens": count,
            "cached_tokens": 0, "output_token_logprobs": [[-0.7, 3, None]] * count,
        }
        return web.json_response({"text": "3" * count, "output_ids": [3] * count, "meta_info": about})

    async def update_weights(self, request):
        """Take the version of new weights, and drop the weights."""
        self.weight_version = (await request.json())["weight_version"]
        return web.json_response({"success": True, "message": ""})

    async def describe(self, request):
        """Answer every other request: healthy, idle, and of this version."""
        return web.json_response({
            "success": True, "status": "ok", "weight_version": self.weight_version, "loads": [],
            "model_path": self.server_args.model_path, "tp_size": self.server_args.tp_size,
            "dp_size": 1, "internal_states": [{}]})


def launch_server(server_args):
    """Serve until the process ends."""
    server = Server(server_args)
    application = web.Application()
    application.router.add_post("/generate", server.generate)
    application.router.add_post("/update_weights_from_tensor", server.update_weights)
    application.router.add_route("*", "/{any:.*}", server.describe)
    web.run_app(application, host=server_args.host, port=server_args.port, print=None)
