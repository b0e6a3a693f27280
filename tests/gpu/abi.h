/* abi.h - compares declarations that Tandem wrote by hand with those of a vendor's header (C++). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_GPU_ABI_H
#define TDM_TESTS_GPU_ABI_H

#include <cstddef>
#include <cstdint>
#include <type_traits>

/* Tandem's headers are C. */
#define _Static_assert static_assert

namespace abi
{

/* The ways in which an argument is passed: by its size, and as one of these. */
enum kind { POINTER, NUMBER, STRUCT, OTHER };

template <class T> constexpr kind kind_of()
{
    return std::is_pointer<T>::value                              ? POINTER
           : std::is_integral<T>::value || std::is_enum<T>::value ? NUMBER
           : std::is_class<T>::value || std::is_union<T>::value   ? STRUCT
                                                                  : OTHER;
}

template <class T, class = void> struct size_behind {
    static constexpr size_t value = 0; /* Unknown: nothing, a struct, or a type without a size. */
};
/* Structs are compared field by field elsewhere; NCCL takes an older and shorter one. */
template <class T>
struct size_behind<T *,
                   std::enable_if_t<kind_of<T>() == NUMBER || std::is_floating_point<T>::value>> {
    static constexpr size_t value = sizeof(T);
};

/* True if a caller with the one declaration passes what a function of the other one expects. */
template <class A, class B> constexpr bool same_argument()
{
    return sizeof(A) == sizeof(B) && kind_of<A>() == kind_of<B>() &&
           (size_behind<A>::value == size_behind<B>::value || size_behind<A>::value == 0 ||
            size_behind<B>::value == 0);
}

template <class A, class B> struct same_function : std::false_type {
};
template <class R, class... A, class S, class... B> struct same_function<R (*)(A...), S (*)(B...)> {
    template <class... Same> static constexpr bool all(Same... same)
    {
        return (same && ... && true);
    }
    static constexpr bool compare()
    {
        if constexpr (sizeof...(A) == sizeof...(B)) {
            return all(same_argument<A, B>()...) && sizeof(R) == sizeof(S);
        } else {
            return false;
        }
    }
    static constexpr bool value = compare();
};

} // namespace abi

/* A field of a struct lies where the vendor's lies, and has its size. */
#define SAME_FIELD(own, field, vendors, vendors_field)                                             \
    static_assert(offsetof(own, field) == offsetof(vendors, vendors_field) &&                      \
                      sizeof(((own *)nullptr)->field) ==                                           \
                          sizeof(((vendors *)nullptr)->vendors_field),                             \
                  #own "." #field)

#endif
