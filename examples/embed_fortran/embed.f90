! A code in Fortran with MPI that trains a model while it runs. Half of its processes solve an equation and learn its
! right-hand side from the solver's own memory; the others have work of their own.
!
! The equation: Lorenz 1996, "Predictability: a problem partly solved", equation 1, with u / 10 and 10 t in place of u
! and t. A ring of cells, each of which depends on two neighbours before it and one behind it; it never settles.
module lorenz
  use mpi
  implicit none
  private

  integer, parameter, public :: cells_of_all = 240, neighbours = 4

  ! A process's part of the ring: field(1) ... field(cells), in a frame of neighbours.
  type, public :: ring
    integer :: comm, before, behind, cells
    real(8), allocatable :: field(:), rate(:)
  contains
    procedure :: create, find_rates, advance
    procedure, private :: fill_frame
  end type

contains

  subroutine create(self, comm)
    class(ring), intent(inout) :: self
    integer, intent(in) :: comm
    integer :: rank, ranks, first, i, ierror

    call MPI_Comm_rank(comm, rank, ierror)
    call MPI_Comm_size(comm, ranks, ierror)
    first = cells_of_all * rank / ranks
    self%comm = comm
    self%before = modulo(rank - 1, ranks)
    self%behind = modulo(rank + 1, ranks)
    self%cells = cells_of_all * (rank + 1) / ranks - first
    allocate (self%field(-1:self%cells + 1), self%rate(self%cells))
    do i = 1, self%cells
      self%field(i) = 0.8d0 * sin(1 + 0.7d0 * (first + i - 1)**2)
    end do
    call self%fill_frame()
  end subroutine

  subroutine fill_frame(self)
    class(ring), intent(inout) :: self
    integer :: n, ierror

    n = self%cells
    call MPI_Sendrecv(self%field(n - 1:n), 2, MPI_DOUBLE_PRECISION, self%behind, 0, self%field(-1:0), 2, &
      MPI_DOUBLE_PRECISION, self%before, 0, self%comm, MPI_STATUS_IGNORE, ierror)
    call MPI_Sendrecv(self%field(1:1), 1, MPI_DOUBLE_PRECISION, self%before, 1, self%field(n + 1:n + 1), 1, &
      MPI_DOUBLE_PRECISION, self%behind, 1, self%comm, MPI_STATUS_IGNORE, ierror)
  end subroutine

  ! du/dt of every cell.
  subroutine find_rates(self)
    class(ring), intent(inout) :: self
    integer :: i

    do i = 1, self%cells
      self%rate(i) = (self%field(i + 1) - self%field(i - 2)) * self%field(i - 1) - 0.1d0 * self%field(i) + 0.08d0
    end do
  end subroutine

  ! A step of time along the rates.
  subroutine advance(self)
    class(ring), intent(inout) :: self

    self%field(1:self%cells) = self%field(1:self%cells) + 0.02d0 * self%rate
    call self%fill_frame()
  end subroutine

end module lorenz

program embed
  use keel
  use lorenz
  use mpi
  implicit none
  integer, parameter :: steps = 600
  integer :: level, rank, ranks, half, ierror
  logical :: learns, is_well, all_well

  call MPI_Init_thread(MPI_THREAD_FUNNELED, level, ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  learns = rank < (ranks + 1) / 2
  call MPI_Comm_split(MPI_COMM_WORLD, merge(0, 1, learns), rank, half, ierror)
  if (learns) then
    call learn(half, is_well)
  else
    call work(half, is_well)
  end if
  call MPI_Comm_free(half, ierror)
  call MPI_Allreduce(is_well, all_well, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, ierror)
  call MPI_Finalize(ierror)
  if (.not. all_well) error stop 1

contains

  ! Whether the right-hand side was learned.
  subroutine learn(comm, is_learned)
    integer, intent(in) :: comm
    logical, intent(out) :: is_learned
    type(keel_settings) :: settings
    type(keel_context) :: context
    type(keel_array) :: inputs, rates, answers
    type(keel_model) :: model
    type(ring), target :: own
    real(8), allocatable, target :: windows(:, :), answer(:)
    real(8) :: loss, mine(2), of_all(2)
    integer :: step, status

    call own%create(comm)
    allocate (windows(neighbours, own%cells), answer(own%cells))

    call settings%create()
    call settings%set('threads', '1')
    call settings%set('strategy', 'zero2')  ! gradients and optimizer state are spread over the ranks
    call context%create(settings, comm)
    call model%create_mlp(context, [neighbours, 32, 32, 1], 'tanh', 'mse')
    call inputs%bind(context, windows)  ! (features, samples)
    call rates%bind(context, own%rate)
    call answers%bind(context, answer)

    do step = 1, steps
      call own%find_rates()
      call gather_windows(own, windows)
      call model%train_step(inputs, rates, 5d-3 * (1 - (step - 1) / real(steps, 8)), loss=loss)
      mine(1) = loss * own%cells
      call MPI_Allreduce(mine, of_all, 1, MPI_DOUBLE_PRECISION, MPI_SUM, comm, ierror)  ! the code's own, between keel's
      if (rank == 0 .and. (step == 1 .or. mod(step, 200) == 0)) &
        print '(a, i4, a, f7.4)', 'step ', step, '  error ', sqrt(of_all(1) / cells_of_all)
      call own%advance()
    end do

    ! A state that it has not seen: 200 steps later.
    do step = 1, 200
      call own%find_rates()
      call own%advance()
    end do
    call own%find_rates()
    call gather_windows(own, windows)
    call model%infer(inputs, answers)
    mine = [sum((answer - own%rate)**2), sum(own%rate**2)]
    call MPI_Allreduce(mine, of_all, 2, MPI_DOUBLE_PRECISION, MPI_SUM, comm, ierror)
    is_learned = sqrt(of_all(1) / of_all(2)) < 0.2d0

    ! With `stat` an error comes back. Here a model of four inputs gets one.
    call model%infer(rates, answers, stat=status)
    if (status == KEEL_ERROR_INPUT .and. rank == 0) print '(2a)', 'as it should be: ', keel_last_error()
    is_learned = is_learned .and. status == KEEL_ERROR_INPUT

    call model%destroy()
    call inputs%destroy()
    call rates%destroy()
    call answers%destroy()
    call context%destroy()  ! before MPI_Finalize
    call settings%destroy()
  end subroutine

  ! What a cell and its neighbours are, in a column each.
  subroutine gather_windows(own, windows)
    type(ring), intent(in) :: own
    real(8), intent(out) :: windows(:, :)
    integer :: i

    do i = 1, own%cells
      windows(:, i) = own%field(i - 2:i + 1)
    end do
  end subroutine

  ! The same equation without anybody who learns.
  subroutine work(comm, is_bounded)
    integer, intent(in) :: comm
    logical, intent(out) :: is_bounded
    type(ring) :: own
    integer :: step

    call own%create(comm)
    is_bounded = .true.
    do step = 1, 4 * steps
      call own%find_rates()
      call own%advance()
      is_bounded = is_bounded .and. all(abs(own%field) < 3)
    end do
  end subroutine

end program embed
