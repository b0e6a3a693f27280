/* place_library.c - an actor that knows which node it runs on. Its class is in a library, because a
 * worker must not run main() of two_nodes.c, which starts daemons. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <tandem/tandem.h>

/* Method name(): replies with the name of the node. */
static tdm_status place_name(tdm_call *call, void *self)
{
    struct tdm_runtime_info info;

    (void)self;
    tdm_runtime_describe(tdm_runtime_current(), &info);
    return tdm_call_reply(call, "s", info.node_name);
}

TDM_ACTOR_CLASS(place, .methods = {{"name", place_name}});
