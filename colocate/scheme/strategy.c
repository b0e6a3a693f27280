/* strategy.c - the names of the forms in which weights are taken from a model and put back into it.
 */
/* SPDX-License-Identifier: Apache-2.0 */

#include <tandem/weights.h>

#include <stddef.h>

/* Names of the strategies.  tandem.torchrl has a class for each, in this order. */
static const char *const names[] = {"tensordict", "state_dict", "module"};

const char *tdm_weights_strategy_name(uint32_t number)
{
    return number < sizeof(names) / sizeof(names[0]) ? names[number] : NULL;
}
