/* export.h - marks the symbols libtandem exports. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_EXPORT_H
#define TANDEM_EXPORT_H

#define TDM_API __attribute__((visibility("default")))

#endif
