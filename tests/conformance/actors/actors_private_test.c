/* actors_private_test.c - the conformance suite of actors on a node of the driver's own. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/actors/stage.h"

int main(int argc, char **argv)
{
    return stage_play(STAGE_PRIVATE, argc, argv);
}
