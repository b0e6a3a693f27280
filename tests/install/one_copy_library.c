/* one_copy_library.c - stands for a job library: linked to libtandem, and loaded. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/install/one_copy.h"

tdm_status one_copy_fail(void)
{
    return tdm_fail(TDM_E_LIMIT, "said by the library");
}
