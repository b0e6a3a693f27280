/* any_class_program.c - a worker with arguments, which is an actor of whatever class is asked for.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <tandem/tandem.h>
#include <unistd.h>

/* First argument of the program; "" without one. */
static const char *first_argument = "";

/* Document of the arguments of the constructor or of an earlier call "keep"; NULL without one. */
static tdm_document *kept;

/* Method "describe": replies the class that was asked for, the first argument of the program, and
 * the number of variables whose names begin with MORE_. */
static tdm_status describe(tdm_call *call, void *self)
{
    struct tdm_runtime_info info;
    extern char **environ;
    int64_t count = 0;

    (void)self;
    tdm_runtime_describe(tdm_runtime_current(), &info);
    for (char **entry = environ; *entry != NULL; entry++) {
        count += strncmp(*entry, "MORE_", strlen("MORE_")) == 0 ? 1 : 0;
    }
    return tdm_call_reply(call, "ssi", info.class_name, first_argument, count);
}

/* Constructor: keeps its arguments if there are any. */
static tdm_status construct(tdm_call *call, void *self)
{
    (void)self;
    return tdm_value_count(tdm_call_arguments(call)) == 0 ? TDM_OK
                                                          : tdm_call_take_arguments(call, &kept);
}

/* Method "keep": takes its arguments, a text, beyond its end. */
static tdm_status keep(tdm_call *call, void *self)
{
    tdm_document *again;

    (void)self;
    TDM_TRY(tdm_call_take_arguments(call, &kept));
    return tdm_call_take_arguments(call, &again) == TDM_E_STATE ? TDM_OK : TDM_E_METHOD;
}

/* Method "kept": replies the text that "keep" took. */
static tdm_status give_kept(tdm_call *call, void *self)
{
    const char *text;

    (void)self;
    TDM_TRY(tdm_unpack(tdm_document_root(kept), "s", &text));
    TDM_TRY(tdm_call_reply(call, "s", text));
    tdm_document_destroy(kept);
    kept = NULL;
    return TDM_OK;
}

/* Method "lend": replies a reference to a value of this process. */
static tdm_status lend(tdm_call *call, void *self)
{
    tdm_ref *ref;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_put(tdm_runtime_current(), &ref, "i", INT64_C(42)));
    status = tdm_call_reply(call, "R", ref);
    tdm_ref_release(ref);
    return status;
}

static const struct tdm_actor_class any_class = {
    .name = "*",
    .construct = construct,
    .methods = {{"describe", describe}, {"keep", keep}, {"kept", give_kept}, {"lend", lend}}};

int main(int argc, char **argv)
{
    tdm_runtime *runtime;

    first_argument = argc > 1 ? argv[1] : "";
    if (strcmp(first_argument, "late") == 0) {
        (void)sleep(6); /* Longer than a connection from another node may take to prove itself. */
    }
    tdm_class_register(&any_class);
    tdm_check(tdm_runtime_start(NULL, &runtime), "start");
    tdm_runtime_stop(runtime);
    return 0;
}
