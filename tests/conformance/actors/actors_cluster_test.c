/* actors_cluster_test.c - the conformance suite of actors on two nodes on one Redis. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/actors/stage.h"

int main(int argc, char **argv)
{
    return stage_play(STAGE_CLUSTER, argc, argv);
}
