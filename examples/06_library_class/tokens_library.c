/* tokens_library.c - an actor class in a shared library. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <tandem/tandem.h>

/* Method count(s): replies with the number of words of a text. */
static tdm_status tokens_count(tdm_call *call, void *self)
{
    const char *text;
    int64_t count = 0;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "s", &text));
    for (const char *at = text; *at != '\0'; at++) {
        count += *at != ' ' && (at == text || at[-1] == ' ') ? 1 : 0;
    }
    return tdm_call_reply(call, "i", count);
}

TDM_ACTOR_CLASS(tokens, .methods = {{"count", tokens_count}});
