! What keel shows to a host's own function: numbers where they lie, as Fortran's arrays. Of the module keel.
module keel_views
  use, intrinsic :: iso_c_binding, only: c_associated, c_double, c_f_pointer, c_float, c_int, c_int32_t, c_int64_t, &
    c_ptr
  implicit none
  private

  ! keel_dtype
  integer(c_int), parameter :: F32 = 0, F64 = 1, I32 = 2, I64 = 3

  ! keel_view of keel.h, which counts dimensions from the other end.
  type, bind(C), public :: keel_view
    type(c_ptr) :: memory
    integer(c_int) :: dtype, rank
    type(c_ptr) :: extents, strides
  end type

  ! keel_look(view, numbers) points to them: (features, samples) where keel.h has (samples, features). `numbers` is a
  ! pointer to an array of one or two dimensions of real(4), real(8), integer(4) or integer(8). It is not associated
  ! where there are no numbers, where they are of another kind, or where columns overlap.
  interface keel_look
    procedure see_real32_1, see_real32_2, see_real64_1, see_real64_2, &
      see_int32_1, see_int32_2, see_int64_1, see_int64_2
  end interface
  public :: keel_look

contains

  ! Extents and strides in Fortran's order; false where the view is no such array.
  logical function is_laid_out(view, dtype, rank, extents, strides)
    type(keel_view), intent(in) :: view
    integer(c_int), intent(in) :: dtype
    integer, intent(in) :: rank
    integer(c_int64_t), intent(out) :: extents(rank), strides(rank)
    integer(c_int64_t), pointer :: values(:)

    extents = 0
    strides = 1
    is_laid_out = c_associated(view%memory) .and. view%dtype == dtype .and. view%rank == rank
    if (.not. is_laid_out) return
    call c_f_pointer(view%extents, values, [rank])
    extents = values(rank:1:-1)
    call c_f_pointer(view%strides, values, [rank])
    strides = values(rank:1:-1)
    if (rank == 2) then
      if (extents(2) <= 1) strides(2) = max(strides(2), (extents(1) - 1) * strides(1) + 1)
      is_laid_out = strides(2) > (extents(1) - 1) * strides(1)
    end if
  end function

  subroutine see_real32_1(view, numbers)
    type(keel_view), intent(in) :: view
    real(c_float), pointer, intent(out) :: numbers(:)
    real(c_float), pointer :: all(:)
    integer(c_int64_t) :: extents(1), strides(1)

    nullify (numbers)
    if (.not. is_laid_out(view, F32, 1, extents, strides)) return
    call c_f_pointer(view%memory, all, [(extents(1) - 1) * strides(1) + 1])
    numbers => all(::max(strides(1), 1_c_int64_t))
  end subroutine

  ! Columns of the pitch between them, of which the view's rows are a part.
  subroutine see_real32_2(view, numbers)
    type(keel_view), intent(in) :: view
    real(c_float), pointer, intent(out) :: numbers(:, :)
    real(c_float), pointer :: all(:, :)
    integer(c_int64_t) :: extents(2), strides(2)

    nullify (numbers)
    if (.not. is_laid_out(view, F32, 2, extents, strides)) return
    call c_f_pointer(view%memory, all, [strides(2), extents(2)])
    numbers => all(1:(extents(1) - 1) * strides(1) + 1:max(strides(1), 1_c_int64_t), :)
  end subroutine

  subroutine see_real64_1(view, numbers)
    type(keel_view), intent(in) :: view
    real(c_double), pointer, intent(out) :: numbers(:)
    real(c_double), pointer :: all(:)
    integer(c_int64_t) :: extents(1), strides(1)

    nullify (numbers)
    if (.not. is_laid_out(view, F64, 1, extents, strides)) return
    call c_f_pointer(view%memory, all, [(extents(1) - 1) * strides(1) + 1])
    numbers => all(::max(strides(1), 1_c_int64_t))
  end subroutine

  ! Columns of the pitch between them, of which the view's rows are a part.
  subroutine see_real64_2(view, numbers)
    type(keel_view), intent(in) :: view
    real(c_double), pointer, intent(out) :: numbers(:, :)
    real(c_double), pointer :: all(:, :)
    integer(c_int64_t) :: extents(2), strides(2)

    nullify (numbers)
    if (.not. is_laid_out(view, F64, 2, extents, strides)) return
    call c_f_pointer(view%memory, all, [strides(2), extents(2)])
    numbers => all(1:(extents(1) - 1) * strides(1) + 1:max(strides(1), 1_c_int64_t), :)
  end subroutine

  subroutine see_int32_1(view, numbers)
    type(keel_view), intent(in) :: view
    integer(c_int32_t), pointer, intent(out) :: numbers(:)
    integer(c_int32_t), pointer :: all(:)
    integer(c_int64_t) :: extents(1), strides(1)

    nullify (numbers)
    if (.not. is_laid_out(view, I32, 1, extents, strides)) return
    call c_f_pointer(view%memory, all, [(extents(1) - 1) * strides(1) + 1])
    numbers => all(::max(strides(1), 1_c_int64_t))
  end subroutine

  ! Columns of the pitch between them, of which the view's rows are a part.
  subroutine see_int32_2(view, numbers)
    type(keel_view), intent(in) :: view
    integer(c_int32_t), pointer, intent(out) :: numbers(:, :)
    integer(c_int32_t), pointer :: all(:, :)
    integer(c_int64_t) :: extents(2), strides(2)

    nullify (numbers)
    if (.not. is_laid_out(view, I32, 2, extents, strides)) return
    call c_f_pointer(view%memory, all, [strides(2), extents(2)])
    numbers => all(1:(extents(1) - 1) * strides(1) + 1:max(strides(1), 1_c_int64_t), :)
  end subroutine

  subroutine see_int64_1(view, numbers)
    type(keel_view), intent(in) :: view
    integer(c_int64_t), pointer, intent(out) :: numbers(:)
    integer(c_int64_t), pointer :: all(:)
    integer(c_int64_t) :: extents(1), strides(1)

    nullify (numbers)
    if (.not. is_laid_out(view, I64, 1, extents, strides)) return
    call c_f_pointer(view%memory, all, [(extents(1) - 1) * strides(1) + 1])
    numbers => all(::max(strides(1), 1_c_int64_t))
  end subroutine

  ! Columns of the pitch between them, of which the view's rows are a part.
  subroutine see_int64_2(view, numbers)
    type(keel_view), intent(in) :: view
    integer(c_int64_t), pointer, intent(out) :: numbers(:, :)
    integer(c_int64_t), pointer :: all(:, :)
    integer(c_int64_t) :: extents(2), strides(2)

    nullify (numbers)
    if (.not. is_laid_out(view, I64, 2, extents, strides)) return
    call c_f_pointer(view%memory, all, [strides(2), extents(2)])
    numbers => all(1:(extents(1) - 1) * strides(1) + 1:max(strides(1), 1_c_int64_t), :)
  end subroutine

end module keel_views
