/* tcp_settings.h - how the processes of a node use TCP. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_TCP_SETTINGS_H
#define TDM_RUNTIME_RPC_TCP_SETTINGS_H

#include "runtime/tls.h"

#include <stdbool.h>
#include <stdint.h>

struct tdm__tcp_settings_message;

/* Size in bytes of an advertised host, including the terminating NUL. */
enum { TDM__ADVERTISED_HOST_BYTES = 128 };

/* How the processes of a node use TCP. The daemon gives its settings to them. All zeros is the
 * usual state. */
struct tdm__tcp_settings {
    enum tdm__tls_mode tls_mode; /* On which connections TLS is used. */
    uint16_t first_port; /* First port at which processes listen that may use any; 0: all. */
    uint16_t last_port;  /* Last of these ports. */
    /* Host by which other nodes reach this one, where that is not the one at which its processes
     * listen; "" if it is. */
    char advertised_host[TDM__ADVERTISED_HOST_BYTES];
};

/* Reads the range "FIRST-LAST" of ports, or one port. Returns false if the text is neither. */
bool tdm__tcp_settings_parse_ports(const char *text, struct tdm__tcp_settings *settings);
/* Fills a message with the settings, whose memory the message borrows. */
void tdm__tcp_settings_to_message(const struct tdm__tcp_settings *settings,
                                  struct tdm__tcp_settings_message *message_out);
/* Reads the settings from a message. Returns TDM_E_PROTOCOL if a value is out of range. */
tdm_status tdm__tcp_settings_of_message(const struct tdm__tcp_settings_message *message,
                                        struct tdm__tcp_settings *settings_out);

#endif
