/* actors_faults_test.c - the conformance suite of actors on two nodes whose connection to the
 * store drops at random. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/actors/stage.h"

int main(int argc, char **argv)
{
    return stage_play(STAGE_FAULTY, argc, argv);
}
