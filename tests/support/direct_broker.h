/* direct_broker.h - a client of a memory broker in the same process, for tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_DIRECT_BROKER_H
#define TDM_TESTS_DIRECT_BROKER_H

#include "colocate/broker/broker_client.h"

/* Opens a client of `broker`, which outlives the client. */
tdm_status tdm__broker_client_open_direct(struct tdm__broker *broker,
                                          const struct tdm__tenant *tenant,
                                          struct tdm__broker_client **client_out);

#endif
