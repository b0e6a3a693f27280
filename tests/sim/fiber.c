/* fiber.c - several stacks on one thread: the threads of simulated processes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/fiber.h"

#include "runtime/assert.h"
#include "runtime/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

enum { STACK_BYTES = 256 * 1024 };

struct stack {
    struct stack *next;
    max_align_t bytes[STACK_BYTES / sizeof(max_align_t)];
};

struct fiber {
    ucontext_t context;
    ucontext_t resumer;
    struct stack *stack; /* owned */
    void (*fn)(void *arg);
    void *arg;
    bool ended;
    void *shadow;         /* Address sanitizer's state of this stack while another one runs. */
    void *resumer_shadow; /* Address sanitizer's state of the resuming stack. */
    const void *resumer_bottom;
    size_t resumer_bytes;
    char detail[TDM__ERROR_DETAIL_BYTES];
};

static struct fiber *current;
static struct stack *spare_stacks;

/* ---- the address sanitizer is told which stack is which ------------------------------------ */

static void leave_for(void **shadow_out, const void *bottom, size_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(shadow_out, bottom, bytes);
#else
    (void)shadow_out;
    (void)bottom;
    (void)bytes;
#endif
}

static void arrive(void *shadow, const void **bottom_out, size_t *bytes_out)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(shadow, bottom_out, bytes_out);
#else
    (void)shadow;
    (void)bottom_out;
    (void)bytes_out;
#endif
}

/* ---- switching -------------------------------------------------------------------------- */

static void fiber_main(void)
{
    struct fiber *self = current;

    arrive(NULL, &self->resumer_bottom, &self->resumer_bytes);
    tdm__error_clear();
    self->fn(self->arg);
    self->ended = true;
    leave_for(NULL, self->resumer_bottom, self->resumer_bytes);
    (void)swapcontext(&self->context, &self->resumer); /* for good */
}

void fiber_resume(struct fiber *fiber)
{
    TDM_ASSERT(current == NULL && !fiber->ended);
    current = fiber;
    leave_for(&fiber->resumer_shadow, fiber->stack->bytes, STACK_BYTES);
    (void)swapcontext(&fiber->resumer, &fiber->context);
    arrive(fiber->resumer_shadow, NULL, NULL);
    current = NULL;
}

void fiber_yield(void)
{
    struct fiber *self = current;
    const char *detail = tdm_error_detail();

    TDM_ASSERT(self != NULL);
    memcpy(self->detail, detail, strlen(detail) + 1);
    leave_for(&self->shadow, self->resumer_bottom, self->resumer_bytes);
    (void)swapcontext(&self->context, &self->resumer);
    arrive(self->shadow, &self->resumer_bottom, &self->resumer_bytes);
    (void)tdm__fail(TDM_OK, "%s", self->detail);
}

/* ---- life ------------------------------------------------------------------------------- */

static struct stack *take_stack(void)
{
    struct stack *stack = spare_stacks;

    if (stack == NULL) {
        stack = malloc(sizeof(*stack));
        TDM_ASSERT(stack != NULL);
    } else {
        spare_stacks = stack->next;
    }
    return stack;
}

struct fiber *fiber_create(void (*fn)(void *arg), void *arg)
{
    struct fiber *fiber = calloc(1, sizeof(*fiber));

    TDM_ASSERT(fiber != NULL);
    fiber->fn = fn;
    fiber->arg = arg;
    fiber->stack = take_stack();
    (void)getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack->bytes;
    fiber->context.uc_stack.ss_size = sizeof(fiber->stack->bytes);
    makecontext(&fiber->context, fiber_main, 0);
    return fiber;
}

bool fiber_has_ended(const struct fiber *fiber)
{
    return fiber->ended;
}

struct fiber *fiber_current(void)
{
    return current;
}

void fiber_destroy(struct fiber *fiber)
{
    TDM_ASSERT(fiber->ended);
    fiber->stack->next = spare_stacks;
    spare_stacks = fiber->stack;
    free(fiber);
}

void fiber_trim(void)
{
    struct stack *stack;

    while ((stack = spare_stacks) != NULL) {
        spare_stacks = stack->next;
        free(stack);
    }
}
