/* tcp_settings.c - how the processes of a node use TCP. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/rpc/tcp_settings.h"

#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/socket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool tdm__tcp_settings_parse_ports(const char *text, struct tdm__tcp_settings *settings)
{
    char first[8] = "";
    const char *dash = strchr(text, '-');
    const char *last = dash != NULL ? dash + 1 : text;
    size_t first_bytes = dash != NULL ? (size_t)(dash - text) : strlen(text);
    unsigned long first_port;
    unsigned long last_port;

    if (first_bytes >= sizeof(first)) {
        return false;
    }
    (void)snprintf(first, sizeof(first), "%.*s", (int)first_bytes, text);
    if (!tdm__port_is_valid(first) || !tdm__port_is_valid(last)) {
        return false;
    }
    first_port = strtoul(first, NULL, 10);
    last_port = strtoul(last, NULL, 10);
    if (first_port == 0 || last_port < first_port) {
        return false;
    }
    settings->first_port = (uint16_t)first_port;
    settings->last_port = (uint16_t)last_port;
    return true;
}

void tdm__tcp_settings_to_message(const struct tdm__tcp_settings *settings,
                                  struct tdm__tcp_settings_message *message_out)
{
    *message_out = (struct tdm__tcp_settings_message){.tls_mode = settings->tls_mode,
                                                      .first_port = settings->first_port,
                                                      .last_port = settings->last_port,
                                                      .advertised_host = settings->advertised_host};
}

tdm_status tdm__tcp_settings_of_message(const struct tdm__tcp_settings_message *message,
                                        struct tdm__tcp_settings *settings_out)
{
    struct tdm__tcp_settings settings = {.tls_mode = TDM__TLS_AUTO};

    if (message->tls_mode >= TDM__TLS_MODES || message->first_port > message->last_port ||
        message->last_port > UINT16_MAX ||
        strlen(message->advertised_host) >= sizeof(settings.advertised_host)) {
        return tdm__fail(TDM_E_PROTOCOL, "settings of TCP: mode of TLS %u, ports %u to %u",
                         message->tls_mode, message->first_port, message->last_port);
    }
    settings.tls_mode = (enum tdm__tls_mode)message->tls_mode;
    settings.first_port = (uint16_t)message->first_port;
    settings.last_port = (uint16_t)message->last_port;
    (void)snprintf(settings.advertised_host, sizeof(settings.advertised_host), "%s",
                   message->advertised_host);
    *settings_out = settings;
    return TDM_OK;
}
