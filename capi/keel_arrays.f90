! Memory of a host's as arrays of keel's, of the module keel.
module keel_arrays
  use, intrinsic :: iso_c_binding, only: c_associated, c_double, c_float, c_int, c_int32_t, c_int64_t, c_intptr_t, &
    c_loc, c_null_ptr, c_ptr
  use keel_c
  use keel_objects
  implicit none
  private

  ! keel_dtype and keel_place
  integer(c_int), parameter :: F32 = 0, F64 = 1, I32 = 2, I64 = 3, HOST = 0

  type, public :: keel_array
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure, private :: bind_real32_1, bind_real32_2, bind_real32_3, bind_real64_1, bind_real64_2, &
      bind_real64_3, bind_int32_1, bind_int32_2, bind_int64_1, bind_int64_2
    generic :: bind => bind_real32_1, bind_real32_2, bind_real32_3, bind_real64_1, bind_real64_2, &
      bind_real64_3, bind_int32_1, bind_int32_2, bind_int64_1, bind_int64_2
    procedure :: destroy => array_destroy
  end type

contains

  ! Memory whose first element is at(0), and the next one along dimension i at(i); NULL where there are no elements. An
  ! array that is bound already is bound anew.
  subroutine bind_memory(self, context, dtype, bytes, extents, at, stat)
    class(keel_array), intent(inout) :: self
    type(keel_context), intent(in) :: context
    integer(c_int), intent(in) :: dtype
    integer, intent(in) :: bytes
    integer(c_int64_t), intent(in) :: extents(:)
    type(c_ptr), intent(in) :: at(0:)
    integer, intent(out), optional :: stat
    integer(c_int64_t) :: gaps(size(extents)), strides(size(extents))
    type(c_ptr) :: first
    integer(c_int) :: status
    integer :: i

    first = at(0)
    do i = 1, size(extents)
      gaps(i) = transfer(at(i), 0_c_intptr_t) - transfer(at(0), 0_c_intptr_t)
      ! As of a component of a derived type: an element that does not lie where numbers of its kind may. keel says so.
      if (mod(gaps(i), int(bytes, c_int64_t)) /= 0) first = at(i)
    end do
    strides = gaps / bytes
    status = KEEL_OK
    if (c_associated(self%handle)) status = keel_array_destroy_c(self%handle)
    if (status == KEEL_OK) status = keel_array_create_c(context%handle, first, dtype, HOST, size(extents), &
      extents(size(extents):1:-1), strides(size(extents):1:-1), self%handle)
    call finish(status, stat)
  end subroutine

  subroutine bind_real32_1(self, context, memory, stat)
    class(keel_array), intent(inout) :: self
    type(keel_context), intent(in) :: context
    real(c_float), intent(inout), target :: memory(:)
    integer, intent(out), optional :: stat
    type(c_ptr) :: at(0:1)

    at = c_null_ptr
    if (size(memory) > 0) then
      at(0) = c_loc(memory(1))
      at(1) = c_loc(memory(min(2, size(memory))))
    end if
    call bind_memory(self, context, F32, 4, shape(memory, c_int64_t), at, stat)
  end subroutine

  subroutine bind_real32_2(self, context, memory, stat)
    class(keel_array), intent(inout) :: self
    type(keel_context), intent(in) :: context
    real(c_float), intent(inout), target :: memory(:,:)
    integer, intent(out), optional :: stat
    type(c_ptr) :: at(0:2)

    at = c_null_ptr
    if (size(memory) > 0) then
      at(0) = c_loc(memory(1, 1))
      at(1) = c_loc(memory(min(2, size(memory, 1)), 1))
      at(2) = c_loc(memory(1, min(2, size(memory, 2))))
    end if
    call bind_memory(self, context, F32, 4, shape(memory, c_int64_t), at, stat)
  end subroutine

  subroutine bind_real32_3(self, context, memory, stat)
    class(keel_array), intent(inout) :: self
    type(keel_context), intent(in) :: context
    real(c_float), intent(inout), target :: memory(:,:,:)
    integer, intent(out), optional :: stat
    type(c_ptr) :: at(0:3)

    at = c_null_ptr
    if (size(memory) > 0) then
      at(0) = c_loc(memory(1, 1, 1))
      at(1) = c_loc(memory(min(2, size(memory, 1)), 1, 1))
      at(2) = c_loc(memory(1, min(2, size(memory, 2)), 1))
      at(3) = c_loc(memory(1, 1, min(2, size(memory, 3))))
    end if
    call bind_memory(self, context, F32, 4, shape(memory, c_int64_t), at, stat)
  end subroutine

  subroutine bind_real64_1(self, context, memory, stat)
    class(keel_array), intent(inout) :: self
    type(keel_context), intent(in) :: context
    real(c_double), intent(inout), target :: memory(:)
    integer, intent(out), optional :: stat
    type(c_ptr) :: at(0:1)

    at = c_null_ptr
    if (size(memory) > 0) then
      at(0) = c_loc(memory(1))
      at(1) = c_loc(memory(min(2, size(memory))))
    end if
    call bind_memory(self, context, F64, 8, shape(memory, c_int64_t), at, stat)
  end subroutine

  subroutine bind_real64_2(self, context, memory, stat)
    class(keel_array), intent(inout) :: self
    type(keel_context), intent(in) :: context
    real(c_double), intent(inout), target :: memory(:,:)
    integer, intent(out), optional :: stat
    type(c_ptr) :: at(0:2)

    at = c_null_ptr
    if (size(memory) > 0) then
      at(0) = c_loc(memory(1, 1))
      at(1) = c_loc(memory(min(2, size(memory, 1)), 1))
      at(2) = c_loc(memory(1, min(2, size(memory, 2))))
    end if
    call bind_memory(self, context, F64, 8, shape(memory, c_int64_t), at, stat)
  end subroutine

  subroutine bind_real64_3(self, context, memory, stat)
    class(keel_array), intent(inout) :: self
    type(keel_context), intent(in) :: context
    real(c_double), intent(inout), target :: memory(:,:,:)
    integer, intent(out), optional :: stat
    type(c_ptr) :: at(0:3)

    at = c_null_ptr
    if (size(memory) > 0) then
      at(0) = c_loc(memory(1, 1, 1))
      at(1) = c_loc(memory(min(2, size(memory, 1)), 1, 1))
      at(2) = c_loc(memory(1, min(2, size(memory, 2)), 1))
      at(3) = c_loc(memory(1, 1, min(2, size(memory, 3))))
    end if
    call bind_memory(self, context, F64, 8, shape(memory, c_int64_t), at, stat)
  end subroutine

  subroutine bind_int32_1(self, context, memory, stat)
    class(keel_array), intent(inout) :: self
    type(keel_context), intent(in) :: context
    integer(c_int32_t), intent(inout), target :: memory(:)
    integer, intent(out), optional :: stat
    type(c_ptr) :: at(0:1)

    at = c_null_ptr
    if (size(memory) > 0) then
      at(0) = c_loc(memory(1))
      at(1) = c_loc(memory(min(2, size(memory))))
    end if
    call bind_memory(self, context, I32, 4, shape(memory, c_int64_t), at, stat)
  end subroutine

  subroutine bind_int32_2(self, context, memory, stat)
    class(keel_array), intent(inout) :: self
    type(keel_context), intent(in) :: context
    integer(c_int32_t), intent(inout), target :: memory(:,:)
    integer, intent(out), optional :: stat
    type(c_ptr) :: at(0:2)

    at = c_null_ptr
    if (size(memory) > 0) then
      at(0) = c_loc(memory(1, 1))
      at(1) = c_loc(memory(min(2, size(memory, 1)), 1))
      at(2) = c_loc(memory(1, min(2, size(memory, 2))))
    end if
    call bind_memory(self, context, I32, 4, shape(memory, c_int64_t), at, stat)
  end subroutine

  subroutine bind_int64_1(self, context, memory, stat)
    class(keel_array), intent(inout) :: self
    type(keel_context), intent(in) :: context
    integer(c_int64_t), intent(inout), target :: memory(:)
    integer, intent(out), optional :: stat
    type(c_ptr) :: at(0:1)

    at = c_null_ptr
    if (size(memory) > 0) then
      at(0) = c_loc(memory(1))
      at(1) = c_loc(memory(min(2, size(memory))))
    end if
    call bind_memory(self, context, I64, 8, shape(memory, c_int64_t), at, stat)
  end subroutine

  subroutine bind_int64_2(self, context, memory, stat)
    class(keel_array), intent(inout) :: self
    type(keel_context), intent(in) :: context
    integer(c_int64_t), intent(inout), target :: memory(:,:)
    integer, intent(out), optional :: stat
    type(c_ptr) :: at(0:2)

    at = c_null_ptr
    if (size(memory) > 0) then
      at(0) = c_loc(memory(1, 1))
      at(1) = c_loc(memory(min(2, size(memory, 1)), 1))
      at(2) = c_loc(memory(1, min(2, size(memory, 2))))
    end if
    call bind_memory(self, context, I64, 8, shape(memory, c_int64_t), at, stat)
  end subroutine

  subroutine array_destroy(self, stat)
    class(keel_array), intent(inout) :: self
    integer, intent(out), optional :: stat
    call finish(keel_array_destroy_c(self%handle), stat)
  end subroutine

end module keel_arrays
