! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
! Allocatable arrays and pointers in regions of flang: their bounds go with them.
!
! RUN: %flang %s -o %t
! RUN: %run2 %t | FileCheck %s
! REQUIRES: flang
!
! CHECK: result: right

program allocatables
  use omp_lib
  implicit none
  integer :: d
  do d = 0, omp_get_num_devices() - 1
    call whole(d)
    call stays(d)
    call pointers(d)
    call arguments(d, 30)
  end do
  print '(a)', 'result: right'

contains

  subroutine check(right, what)
    logical, intent(in) :: right
    character(*), intent(in) :: what
    if (.not. right) then
      print '(2a)', 'wrong: ', what
      stop 1
    end if
  end subroutine

  subroutine whole(d)
    integer, intent(in) :: d
    real(8), allocatable :: a(:), b(:, :), missing(:)
    real(8) :: total
    integer :: first, last, i
    logical :: there
    allocate (a(-5:94), b(0:9, 3))
    a = 2
    b = 1
    !$omp target map(to: a) map(tofrom: b) map(from: total, first, last) device(d)
    first = lbound(a, 1)
    last = ubound(a, 1)
    b(:, 2) = a(-5:4)*3
    total = sum(a)
    !$omp end target
    call check(first == -5 .and. last == 94 .and. total == 200, 'bounds')
    call check(sum(b) == 80 .and. all(b(:, 2) == 6), 'two dimensions')

    ! Mapped without being named.
    !$omp target teams distribute parallel do device(d)
    do i = lbound(a, 1), ubound(a, 1)
      a(i) = i
    end do
    call check(all(a == [(real(i, 8), i=-5, 94)]), 'implicit')

    !$omp target map(tofrom: missing) map(from: there) device(d)
    there = allocated(missing)
    !$omp end target
    call check(.not. there, 'not allocated')
  end subroutine

  subroutine stays(d)
    integer, intent(in) :: d
    integer, allocatable :: a(:)
    integer :: i
    allocate (a(100000), source=1)
    !$omp target enter data map(to: a) device(d)
    do i = 1, 3
      !$omp target device(d)
      a = a + 1
      !$omp end target
    end do
    call check(all(a == 1), 'the host keeps its own')
    !$omp target update from(a(11:20)) device(d)
    call check(sum(a) == 100030, 'update of a section')
    !$omp target exit data map(from: a) device(d)
    call check(all(a == 4), 'exit data')
    deallocate (a)
  end subroutine

  subroutine pointers(d)
    integer, intent(in) :: d
    integer, pointer :: p(:)
    integer, target :: t(10)
    t = 5
    p => t(3:6)
    !$omp target map(tofrom: p) device(d)
    p(2) = 50
    !$omp end target
    call check(sum(t) == 95 .and. t(4) == 50, 'pointer')
  end subroutine

  ! Automatic arrays, and a region's own.
  subroutine arguments(d, n)
    integer, intent(in) :: d, n
    integer :: a(n, 2), i
    a = 1
    !$omp target map(tofrom: a) device(d)
    block
      integer, allocatable :: own(:)
      allocate (own(n))
      own = [(i, i=1, n)]
      a(:, 2) = own(n:1:-1)
      deallocate (own)
    end block
    !$omp end target
    call check(all(a(:, 1) == 1) .and. all(a(:, 2) == [(i, i=n, 1, -1)]), 'allocated in a region')
  end subroutine
end program
