/* export.h - attributes of public functions. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_EXPORT_H
#define TANDEM_EXPORT_H

/* Marks a function that libtandem exports. */
#define TDM_API __attribute__((visibility("default")))

/* Marks a function whose status must be checked, because it makes an object only on TDM_OK. */
#define TDM_MUST_CHECK __attribute__((warn_unused_result))

#endif
