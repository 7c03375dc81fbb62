package task

import "time"

// Ticket is one ticket as the table holds it.
type Ticket struct {
	ID        string    `json:"ticket_id"`
	Status    string    `json:"status"`
	Version   int64     `json:"version"` // 1 after the first update; 0: the ticket does not exist yet
	UpdatedAt time.Time `json:"updated_at"`
}
