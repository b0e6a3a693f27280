/* store_takeover_suite.h - what every filling of the store must refuse of a node that is lost. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_STORE_TAKEOVER_SUITE_H
#define TDM_TESTS_STORE_TAKEOVER_SUITE_H

/* Runs all tests as one cmocka group over the store_fixture that `setup` puts into *state. */
int store_takeover_suite_run(int (*setup)(void **state), int (*teardown)(void **state));

#endif
