/* consumer.c - an external program that is built against an installed Tandem. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <tandem/tandem.h>

int main(void)
{
    return puts(tdm_strerror(TDM_OK)) == EOF;
}
